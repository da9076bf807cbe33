"""`fewpass audit`: the log of changes."""

from typing import Annotated

from typer import Exit, Option

from service import product
from service.cli.shared_options import JsonOption, WorkspaceOption
from service.terminal_output import err, open_existing_workspace, out, print_json_document, print_table


def audit_command(
    actor: Annotated[
        str | None, Option("--actor", help="Show only the changes of this key, job or user, named as in the table.")
    ] = None,
    limit: Annotated[int, Option("--limit", "-n", min=1, max=1000, help="Number of lines, newest first.")] = 50,
    verify: Annotated[
        bool, Option("--verify", help="Check the chain of hashes; exit 1 if a line was changed or removed.")
    ] = False,
    workspace: WorkspaceOption = None,
    json_output: JsonOption = False,
) -> None:
    """Show who changed what, newest first, or check that no line of the audit log was changed or removed."""
    with open_existing_workspace(workspace) as here:
        if verify:
            faults = product.audit_log_faults(here)
            if json_output:
                print_json_document({"faults": faults})
            elif not faults:
                out.print("The audit log is intact.")
            for fault in () if json_output else faults:
                err.print(fault)
            raise Exit(1 if faults else 0)
        lines = product.list_audit_lines(here, limit, actor=actor).items
    if json_output:
        print_json_document([vars(line) for line in lines])
        return
    rows = [[line.id, line.at, line.actor, line.origin, line.action, line.subject] for line in lines]
    print_table(None, ["id", "at", "actor", "from", "action", "object"], rows, "no entries yet")
