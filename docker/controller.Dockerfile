# What runs driple-run: driple without TensorFlow, and an SSH client. Built from the top of the checkout:
#   docker build -f docker/controller.Dockerfile -t driple-controller:0.2.0 .
# docs/guides/containers.md says how to pin the base by its digest.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /source
# An environment without pip of its own: the image is copied from it, and nothing is installed later.
RUN python3 -m venv --without-pip /opt/driple
COPY setup.cfg constraints.txt docker/requirements.py ./
RUN python3 requirements.py setup.cfg >requirements.txt \
    && pip --python /opt/driple/bin/python3 install --only-binary :all: \
        --constraint constraints.txt --requirement requirements.txt \
    && pip install --constraint constraints.txt setuptools
# The folders that setup.cfg names, and README.md and LICENSE, which it reads.
COPY pyproject.toml README.md LICENSE ./
COPY driple driple
COPY contracts contracts
COPY agents agents
COPY orchestrator orchestrator
COPY workloads workloads
COPY pipeline pipeline
COPY inspector inspector
COPY simulator simulator
COPY experiments experiments
COPY inspectors inspectors
COPY zoo_graphs zoo_graphs
# Without isolation, so that the package is built by the setuptools of constraints.txt and by no newer one.
RUN pip wheel --no-deps --no-build-isolation --wheel-dir wheels . \
    && pip --python /opt/driple/bin/python3 install --no-deps wheels/*.whl \
    && pip --python /opt/driple/bin/python3 check


FROM ${PYTHON_IMAGE} AS controller
# Debian never changes the version of a package within a release, and keeps only the newest revision: a pin on that
# would break the build at the next security fix, and this one takes the fix.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends 'openssh-client=1:9.2p1-*' \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log \
    && groupadd --gid 10001 driple \
    && useradd --uid 10001 --gid 10001 --create-home --shell /bin/bash driple \
    # A new volume takes owner and mode of the folder it is mounted on.
    && install -d -o 10001 -g 10001 -m 0700 /keys /home/driple/.ssh \
    && install -d -o 10001 -g 10001 /home/driple/traces
COPY --from=build /opt/driple /opt/driple
COPY --chmod=0755 docker/driple-make-keys /usr/local/bin/driple-make-keys
COPY experiments /home/driple/experiments
ENV PATH=/opt/driple/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/home/driple \
    USER=driple \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /home/driple
# No HEALTHCHECK: a sweep ends, and its exit code says how.
CMD ["driple-run", "--help"]
