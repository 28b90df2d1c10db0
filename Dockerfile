# Two images from one file:
#   docker build --target student -t attention-student .   Jupyter and the package, for doing exercises
#   docker build --target grader  -t attention-grader .    the whole course with the judge, for grading
FROM python:3.11-slim-bookworm AS package
WORKDIR /source
COPY pyproject.toml setup.py README.md LICENSE ./
COPY src src
COPY notebooks notebooks
RUN pip wheel --no-deps --wheel-dir /wheels .

FROM python:3.11-slim-bookworm AS student
COPY --from=package /wheels /wheels
RUN pip install --no-cache-dir torch --index-url https://download.pytorch.org/whl/cpu \
 && pip install --no-cache-dir /wheels/*.whl jupyterlab matplotlib
RUN useradd --create-home student
USER student
WORKDIR /home/student
EXPOSE 8888
CMD ["jupyter", "lab", "--ip=0.0.0.0", "--no-browser"]

# bubblewrap makes user namespaces: run this one with `--security-opt seccomp=unconfined
# --security-opt apparmor=unconfined`, or grade at the level `process`.
FROM python:3.11-slim-bookworm AS grader
RUN apt-get update && apt-get install -y --no-install-recommends bubblewrap git make \
 && rm -rf /var/lib/apt/lists/*
COPY --from=package /wheels /wheels
RUN pip install --no-cache-dir torch --index-url https://download.pytorch.org/whl/cpu \
 && pip install --no-cache-dir "$(ls /wheels/*.whl)[judge,cluster,postgres]"
WORKDIR /course
COPY nbgrader_config.py ./
COPY solutions solutions
COPY notebooks notebooks
VOLUME /course/classroom
ENTRYPOINT ["course"]
CMD ["doctor"]
