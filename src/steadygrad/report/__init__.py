"""Records become tables, figures and one HTML page. Nothing is run again."""

from steadygrad.report.page import NoRecordsError, Written, write
from steadygrad.report.section import VERDICTS, Block, Claim, Figure, Section, Table
from steadygrad.report.sections import SECTIONS

__all__ = ["SECTIONS", "VERDICTS", "Block", "Claim", "Figure", "NoRecordsError", "Section", "Table", "Written", "write"]
