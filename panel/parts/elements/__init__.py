"""HTML elements, buttons, fields and pickers."""
