# unseen serve on the CPU: docker run -p 8000:8000 -v "$PWD/model.onnx:/model/model.onnx:ro" unseen-serve /model/model.onnx
FROM python:3.12-slim AS build
WORKDIR /source
RUN python -m venv /opt/unseen
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN /opt/unseen/bin/pip install --no-cache-dir '.[serve]'

FROM python:3.12-slim
RUN useradd --system --uid 10001 --no-create-home unseen
COPY --from=build /opt/unseen /opt/unseen
ENV PATH=/opt/unseen/bin:$PATH PYTHONUNBUFFERED=1 UNSEEN_CACHE=/tmp/unseen
USER unseen
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["unseen", "serve", "--host", "0.0.0.0", "--port", "8000"]
