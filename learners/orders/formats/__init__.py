"""Networks as files of other programs: BIF, XMLBIF and XDSL."""
