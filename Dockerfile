# Image of harvester-ccm. Only features of every builder are used; nothing is compiled, so that the same file serves
# amd64 and arm64.
#
# BASE_IMAGE is what the image is built with and taken from: Debian with Python 3.11 or newer as python3, and venv. Of it
# the image has the interpreter and the libraries that the program needs, and nothing else: no shell, no pip.
ARG BASE_IMAGE=python:3.13-slim@sha256:9662417aace5ae7b8e2609cce472b72a8958e134ba372808abe9cc1a0c0125e6

FROM ${BASE_IMAGE} AS build
# pip of the build: another index or a directory of wheels where there is no network.
ARG PIP_INDEX_URL
ARG PIP_FIND_LINKS
ARG PIP_NO_INDEX
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /build
COPY requirements.txt deploy/image/build-requirements.txt ./
# pip itself stays behind: it works on the environment of the program from another one.
RUN python3 -m venv --without-pip /opt/harvester-ccm \
 && python3 -m venv tools \
 && tools/bin/pip install --only-binary=:all: --require-hashes -r build-requirements.txt \
 && tools/bin/pip --python /opt/harvester-ccm/bin/python3 install --no-compile --only-binary=:all: --require-hashes -r requirements.txt
COPY pyproject.toml README.md LICENSE ./
COPY harvester_ccm harvester_ccm
COPY deploy/image/*.py image/
RUN tools/bin/pip wheel --no-deps --no-build-isolation --no-index --wheel-dir wheel . \
 && tools/bin/pip --python /opt/harvester-ccm/bin/python3 install --no-compile --no-deps --no-index wheel/*.whl \
 && /opt/harvester-ccm/bin/python3 image/precompile.py /opt/harvester-ccm/bytecode \
 && python3 image/collect.py root /opt/harvester-ccm \
 && mkdir -p root/opt root/usr/bin \
 && mv /opt/harvester-ccm root/opt/ \
 && ln -s /opt/harvester-ccm/bin/harvester-ccm /opt/harvester-ccm/bin/harvester-cloud-provider root/usr/bin/

FROM scratch
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="harvester-ccm" \
      org.opencontainers.image.description="Cloud controller manager for Kubernetes clusters whose nodes are Harvester virtual machines" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /build/root/ /
# The root file system is read-only: bytecode is made above and never written.
ENV PATH=/opt/harvester-ccm/bin:/usr/local/bin:/usr/bin PYTHONPYCACHEPREFIX=/opt/harvester-ccm/bytecode PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# Charts that know nothing of this image run it as its own user, with the kubeconfig that Rancher wrote for root only.
# The chart in this repository sets another user wherever that file is not used.
USER 0:0
EXPOSE 10258
CMD ["harvester-cloud-provider"]
