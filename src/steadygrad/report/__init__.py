"""Records become tables, figures and one HTML page. Nothing is run again."""

from steadygrad.report.page import NoRecordsError, Written, write
from steadygrad.report.section import Exhibit, Figure, Part, Section, Table
from steadygrad.report.sections import SECTIONS

__all__ = ["SECTIONS", "Exhibit", "Figure", "NoRecordsError", "Part", "Section", "Table", "Written", "write"]
