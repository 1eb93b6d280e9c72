// Search runs in a web worker, which browsers refuse to pages opened from the file system. There, a
// hidden frame takes the worker's place: the same script, the same messages.
class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.append(this.frame);
    const inside = this.frame.contentWindow;
    inside.postMessage = (data) =>
      setTimeout(() => this.dispatchEvent(new MessageEvent("message", { data })));
    this.loaded = new Promise((resolve) => {
      const script = this.frame.contentDocument.createElement("script");
      script.src = url;
      script.onload = resolve;
      this.frame.contentDocument.body.append(script);
    });
  }
  postMessage(data) {
    this.loaded.then(() =>
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
  }
  terminate() {
    this.frame.remove();
  }
}

// A section is found if it has every word of the query, or words that begin with them. The theme by
// itself asks for any of them. A query with quotes or signs of its own stays as it is.
const everyWord = (query) =>
  /["+*^~:]/.test(query) ? query : query.replace(/[^\s-]+/g, "+$&*").replace(/-/g, " ");

const Plain = location.protocol === "file:" ? FrameWorker : Worker;
window.Worker = class extends Plain {
  postMessage(message) {
    const asks = message?.type === 2;
    super.postMessage(asks ? { ...message, data: everyWord(message.data) } : message);
  }
};
