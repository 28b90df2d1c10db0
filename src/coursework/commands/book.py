"""`course build` and `course serve`: the book."""

from __future__ import annotations

from typing import Annotated

import typer

from coursework.classroom import Course


def register(app: typer.Typer) -> None:
    app.command()(build)
    app.command()(serve)


def build(
    pdf: Annotated[
        bool, typer.Option("--pdf", help="Print it as well: each page, and all in one, as PDF.")
    ] = False,
) -> None:
    """Build the book into _build/html; a warning or a failing cell is an error."""
    from coursework import book as pages

    root = Course.find().root
    pages.build(root)
    if pdf:
        from coursework import paper

        paper.print_book(root)


def serve(
    port: Annotated[int, typer.Option(help="Port on this machine.")] = 8000,
) -> None:
    """Build the book and serve it on this machine."""
    from coursework import book as pages

    root = Course.find().root
    pages.build(root)
    pages.serve(root, port)
