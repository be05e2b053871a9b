"""Progress display, totals and the HTML report."""
