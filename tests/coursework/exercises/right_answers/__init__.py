"""Right answers in many styles, one module a chapter, named by its topic.

Each module holds `RIGHT_ANSWERS`: for every id a list of functions, none of which calls `attend`.
None of them may ever be refused (`../test_truth.py`). Those to an instructor's own exercises lie in
the folder that COURSE_EXERCISES names.
"""

from coursework import private

if folder := private.folder():
    __path__.append(str(folder / "right_answers"))
