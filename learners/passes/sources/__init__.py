"""Where rows come from: files, formats, file systems."""
