"""Pictures of attention maps and charts: PNG, PDF, SVG, HTML and terminal."""
