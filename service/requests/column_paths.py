"""Names of columns at the end of a path: any text, slashes and line breaks included."""

from starlette.convertors import PathConvertor, register_url_convertor

COLUMN = "{column:column}"


class ColumnConvertor(PathConvertor):
    """The rest of a path as text; unlike Starlette's own convertor, also with line breaks."""

    regex = "(?s:.*)"


register_url_convertor("column", ColumnConvertor())
