"""What the command line prints of names that others chose."""

from service.terminal_output import err, out, print_error, print_warning
from storage.errors import NotFound

NAME = "a\x1b]0;title\x07\x1b[2J\r\u202eb\x9bm\x00"
SHOWN = "a\ufffd]0;title\ufffd[2J\ufffdb\ufffdm\ufffd"  # rich drops bells and carriage returns by itself


def test_no_name_commands_the_terminal(capsys):
    out.print(NAME, markup=False, highlight=False)
    err.print(f"[bold]{NAME}[/]")
    print_warning(NAME)
    print_error(NotFound("model", NAME), as_json=False)
    said = capsys.readouterr()
    assert said.out == f"{SHOWN}\n"
    assert said.err.count(SHOWN) == 2
    assert not set("".join(said)) & {"\x1b", "\x07", "\r", "\u202e", "\x9b", "\x00"}


def test_lines_and_other_letters_are_printed_as_they_are(capsys):
    out.print("zwei\nZeilen\tüber 日本")
    assert capsys.readouterr().out.split() == ["zwei", "Zeilen", "über", "日本"]
