# docker build -t fewpass . && docker run -p 127.0.0.1:8000:8000 -v fewpass:/data fewpass
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
# Kernels are compiled here, for any processor with AVX2: a baked cache of one exact processor misses on every other.
# docs/decisions/container.md has the measured cost; on ARM build with --build-arg KERNEL_CPU=generic.
ARG KERNEL_CPU=x86-64-v3
ENV NUMBA_CPU_NAME=${KERNEL_CPU} NUMBA_CPU_FEATURES="" NUMBA_CACHE_DIR=/opt/fewpass/kernels
WORKDIR /src
RUN python3 -m venv /opt/fewpass
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY learners learners
COPY storage storage
COPY service service
COPY fewpass fewpass
RUN /opt/fewpass/bin/python -m pip install --no-cache-dir --disable-pip-version-check --constraint constraints.txt '.[postgres,gibbs,pictures]' \
    # Tests, and what only compilers of C and C++ read.
    && find /opt/fewpass -type d -name tests -prune -exec rm -r {} + \
    && find /opt/fewpass/lib -type f -regextype posix-extended -regex '.*\.(h|hpp|c|cc|cpp|cu|cuh|pyx|pxd|pxi|a|f|f90)' -delete \
    && /opt/fewpass/bin/python -m pip uninstall --yes --disable-pip-version-check setuptools pip
WORKDIR /
RUN /opt/fewpass/bin/fewpass precompile

FROM ${PYTHON_IMAGE}
ARG KERNEL_CPU=x86-64-v3
ENV NUMBA_CPU_NAME=${KERNEL_CPU} NUMBA_CPU_FEATURES="" NUMBA_CACHE_DIR=/opt/fewpass/kernels \
    PATH=/opt/fewpass/bin:$PATH PYTHONUNBUFFERED=1 \
    FEWPASS_WORKSPACE=/data/workspace
RUN useradd --create-home --uid 10001 fewpass && install -d -o fewpass -g fewpass /data
COPY --from=build /opt/fewpass /opt/fewpass
USER fewpass
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
    CMD ["python3", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/healthz', timeout=2)"]
CMD ["fewpass", "serve", "--host", "0.0.0.0"]
