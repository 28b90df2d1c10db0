"""Things that cannot be done, said in one sentence to the person at the keyboard."""


class CourseError(Exception):
    """A command cannot run. The message says what is wrong and what to do; nothing was changed."""
