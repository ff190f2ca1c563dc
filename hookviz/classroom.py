"""For teachers: pages with questions, and the table of what was handed in."""

from .export.grades import Answer, Grades, Sheet, grade
from .export.lesson import Step

__all__ = ["Answer", "Grades", "Sheet", "Step", "grade"]
