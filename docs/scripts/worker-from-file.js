// Search without a server. Browsers give pages opened from a folder (file:) no Worker, in which the theme's search runs.
// This one runs the script in a hidden frame of the same page instead. The theme looks for the name IFrameWorker.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => {
        const message = new MessageEvent("message", { data });
        this.dispatchEvent(message);
        if (this.onmessage) this.onmessage(message);
      };
      this.ready = new Promise((done) => {
        const script = inside.document.createElement("script");
        script.onload = done;
        script.src = new URL(url, location.href).href;
        inside.document.head.append(script);
      });
      this.inside = inside;
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data })));
    }
    terminate() {
      this.inside.frameElement.remove();
    }
  };
}
