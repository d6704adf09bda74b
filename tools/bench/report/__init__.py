"""The parts of tools/report: what it measures, how it keeps the results, and how it draws them."""
