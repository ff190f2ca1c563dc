"""For teachers: pages with questions, and the table of what was handed in."""

from .export.lesson import Answer, Grades, Sheet, Step, grade

__all__ = ["Answer", "Grades", "Sheet", "Step", "grade"]
