# The service as one image: `hansei` with the commands serve (default), worker and migrate.
# docker-compose.yml runs it; tests/deploy builds the same wheel and runs the same commands.

# The digest decides, the tag is for people. To renew both: `docker buildx imagetools inspect python:3.11-slim-trixie`
# prints as `Digest` the one of all platforms; write it here with the exact version as the tag.
FROM python:3.11.16-slim-trixie@sha256:be1575ed968de893bd54f4c56315ff7c4736ce522c1bca08fd521731aafc0d76 AS base
ENV PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1

FROM base AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
RUN ["python", "-m", "venv", "--without-pip", "/opt/hansei"]

# Dependencies change less often than the code, so they are a layer of their own. Wheels only: nothing
# is compiled, here or in the final image. The build backend is among them, hash-checked like the rest.
COPY requirements.lock ./
RUN ["pip", "--python", "/opt/hansei", "install", "--require-hashes", "--only-binary=:all:", "--requirement=requirements.lock"]

COPY pyproject.toml README.md ./
COPY apps apps
COPY sdk sdk
COPY migrations migrations
COPY prompts prompts
COPY config config
RUN ["pip", "--python", "/opt/hansei", "install", "--no-index", "--no-deps", "--no-build-isolation", "./sdk", "."]

FROM base
COPY --from=build /opt/hansei /opt/hansei
# HOME is a folder that any user may write: the service keeps nothing there.
ENV PATH=/opt/hansei/bin:$PATH \
    HOME=/tmp \
    HANSEI_LOG_FORMAT=json
WORKDIR /opt/hansei
USER 10001:10001
EXPOSE 8321
# Alive, not ready: a process is not to be replaced because its database is away.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8321/health', timeout=4)"]
ENTRYPOINT ["hansei"]
CMD ["serve", "--host", "0.0.0.0", "--processes", "1", "--port", "8321"]
