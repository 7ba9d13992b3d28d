// Run by an <img> that fails to load, the one hook that ipywidgets leave for script; `this` is that image.
// It gives a panel what widgets lack: names for a screen reader, its own arrow keys, a sharp picture, and clicks.
const hook = this;

function name(slider) {
  const label = slider.querySelector('.widget-label').textContent;
  const handle = slider.querySelector('.noUi-handle');
  const readout = slider.querySelector('.widget-readout');
  handle.setAttribute('aria-label', label);
  readout.setAttribute('role', 'textbox');
  readout.setAttribute('aria-label', label + ', typed');
  const round = () => { // a screen reader would read 0.23000000000000043
    const said = handle.getAttribute('aria-valuetext'), short = String(Number(Number(said).toFixed(2)));
    if (said !== short) handle.setAttribute('aria-valuetext', short);
  };
  new MutationObserver(round).observe(handle, {attributeFilter: ['aria-valuetext']});
  round();
}

function group(radios) { // one stop for Tab, arrows within, as in any form
  const name = 'qkv-' + Math.random();
  radios.querySelectorAll('input').forEach(input => { input.name = name; });
  radios.setAttribute('role', 'radiogroup');
  radios.setAttribute('aria-label', radios.closest('.qkv-panel').querySelector('p').textContent);
}

function connect(live) {
  const image = live.querySelector('img.qkv-picture');
  image.setAttribute('aria-labelledby', live.querySelector('p[id]').id); // the caption names the picture
  (function tell() { // the kernel draws as many pixels as the screen has, also after zooming
    write(live.querySelector('.qkv-ratio input'), window.devicePixelRatio);
    matchMedia(`(resolution: ${window.devicePixelRatio}dppx)`).addEventListener('change', tell, {once: true});
  })();
  image.addEventListener('click', event => {
    const across = event.offsetX / image.clientWidth, down = event.offsetY / image.clientHeight;
    write(live.querySelector('.qkv-click input'), `${across} ${down}`);
  });
}

function write(input, value) { // as if it had been typed, so that the kernel hears of it
  input.value = value;
  for (const kind of ['input', 'change']) input.dispatchEvent(new Event(kind, {bubbles: true}));
}

(function settle(tries) {
  const panel = hook.closest('.qkv-panel');
  const missing = (outer, inner) => panel.querySelectorAll(outer).length > panel.querySelectorAll(inner).length;
  const early = !panel || missing('.widget-slider', '.noUi-handle') || missing('.qkv-live', '.qkv-live p[id]');
  if (early) return tries && setTimeout(settle, 100, tries - 1);
  panel.querySelectorAll('.widget-slider').forEach(name);
  panel.querySelectorAll('.widget-radio').forEach(group);
  panel.querySelectorAll('.qkv-live').forEach(connect);
  panel.addEventListener('keydown', event => { // or JupyterLab would move from cell to cell
    const own = /^(Arrow|Page|Home|End|Enter| )/.test(event.key);
    if (own && !event.ctrlKey && !event.shiftKey && !event.altKey && !event.metaKey) event.stopPropagation();
  });
})(100);
