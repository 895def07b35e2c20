"""F as it is called: on rows, under fixed conditions; its linearisation; several steps of it as one graph."""

from steadygrad.update.update import AGREEMENT, REENTRANT, Update, agree, check_args, needs_gradient, nodes_behind

__all__ = ["AGREEMENT", "REENTRANT", "Update", "agree", "check_args", "needs_gradient", "nodes_behind"]
