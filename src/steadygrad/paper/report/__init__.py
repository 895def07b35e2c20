"""Records become tables, figures and one HTML page. Nothing is run again."""

from steadygrad.paper.report.page import SECTIONS, NoRecordsError, Written, write
from steadygrad.paper.report.section import Exhibit, Figure, Part, Section, Table

__all__ = ["SECTIONS", "Exhibit", "Figure", "NoRecordsError", "Part", "Section", "Table", "Written", "write"]
