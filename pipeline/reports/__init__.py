"""Pages to look at: one self-contained HTML file of a sweep, of datasets or of inspectors."""
