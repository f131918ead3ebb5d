# What trains: TensorFlow, driple[workloads] and the sampler. Built from the top of the checkout:
#   docker build -f docker/workload.Dockerfile --target task -t driple-task:0.2.0 .
#   docker build -f docker/workload.Dockerfile --target host -t driple-host:0.2.0 .
# For GPUs add: --build-arg TENSORFLOW='tensorflow[and-cuda]'
# docs/guides/containers.md says how to pin the base by its digest.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ARG TENSORFLOW=tensorflow
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /source
# An environment without pip of its own: the image is copied from it, and nothing is installed later.
RUN python3 -m venv --without-pip /opt/driple
COPY setup.cfg constraints.txt docker/requirements.py ./
RUN python3 requirements.py setup.cfg workloads >requirements.txt \
    && pip --python /opt/driple/bin/python3 install --only-binary :all: \
        --constraint constraints.txt --requirement requirements.txt "${TENSORFLOW}" \
    # Headers to compile operations against: 430 MB that no task reads.
    && rm -r /opt/driple/lib/python3*/site-packages/tensorflow/include \
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


# Runs one task: docker run ... driple-task:0.2.0 python3 ...
FROM ${PYTHON_IMAGE} AS task
COPY --from=build /opt/driple /opt/driple
# A task runs with the uid of whoever owns its run folder: that uid has no name here, and needs a home it can write to.
RUN groupadd --gid 10001 driple \
    && useradd --uid 10001 --gid 10001 --create-home --shell /bin/bash driple \
    && install -d -m 1777 /home/any
# utility is what brings NVML, which the sampler reads, beside compute.
ENV PATH=/opt/driple/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/home/any \
    USER=driple \
    PYTHONUNBUFFERED=1 \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 10001:10001
WORKDIR /home/any
# No ENTRYPOINT: what is asked for is what runs. No HEALTHCHECK: whoever starts a task watches it.
CMD ["python3", "-m", "driple.workloads.cli", "--help"]


# The same as a host that the controller logs in to.
FROM task AS host
USER 0:0
# Debian never changes the version of a package within a release, and keeps only the newest revision: a pin on that
# would break the build at the next security fix, and this one takes the fix.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends 'openssh-server=1:9.2p1-*' \
    # Made by the package, the same for all who run the image: nobody must ever use them.
    && rm -rf /etc/ssh/ssh_host_* /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log \
    # A new volume takes owner and mode of the folder it is mounted on.
    && install -d -o 10001 -g 10001 -m 0700 /keys
COPY docker/sshd_config /etc/driple/sshd_config
COPY --chmod=0755 docker/driple-sshd /usr/local/bin/driple-sshd
ENV HOME=/home/driple
USER 10001:10001
WORKDIR /home/driple
EXPOSE 2222
# Seldom, because a host is there to be measured. The first checks come sooner: engines look every 5 s while it starts.
HEALTHCHECK --interval=30s --timeout=3s --start-period=30s --retries=3 CMD ["driple-sshd", "--check"]
CMD ["driple-sshd"]
