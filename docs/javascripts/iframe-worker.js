/* Browsers start no worker from a plain file. The search then runs in a hidden frame instead, which
   speaks to the page as a worker would. On a server nothing is changed. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      const inner = frame.contentWindow
      inner.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      const script = inner.document.createElement("script")
      script.src = url
      this.inner = inner
      this.ready = new Promise(resolve => (script.onload = resolve))
      inner.document.body.append(script)
    }

    postMessage(data) {
      this.ready.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
}
