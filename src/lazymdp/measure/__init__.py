"""Measures of what an agent does and of which states matter."""
