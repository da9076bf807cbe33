"""Network file formats of other programs: BIF, XMLBIF and XDSL."""
