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
  typed(label, handle, readout, slider.closest('.qkv-matrix') || slider);
}

function typed(label, handle, readout, place) { // ipywidgets alone hear only Enter, read 0,5 as 0, and clamp
  const next = place.nextElementSibling, said = next?.matches('.qkv-said') ? next : alert(place, 'after');
  let kept = '', passing = false;
  readout.addEventListener('focusin', () => { kept = readout.textContent; });
  const take = event => {
    const left = event.type === 'focusout', text = readout.textContent.trim();
    if (passing || (!left && event.key !== 'Enter')) return;
    const number = text ? Number(text.replace('−', '-').replace(',', '.')) : NaN;
    const [low, high] = ['min', 'max'].map(end => Number(handle.getAttribute('aria-value' + end)));
    const kind = kept.includes('.') ? 'a number' : 'a whole number';
    const fits = number >= low && number <= high && (kept.includes('.') || Number.isInteger(number));
    const wrong = `${label}: expected ${kind} from ${low} to ${high}, got "${text}". It stays ${kept}.`;
    if (text !== kept) said.textContent = fits ? '' : wrong;
    readout.textContent = fits && text !== kept ? String(number) : kept;
    if (!fits || text === kept) event.stopPropagation();
    else if (left) {
      passing = true;
      readout.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', keyCode: 13, bubbles: true}));
      passing = false;
    }
    setTimeout(() => { kept = readout.textContent; }); // once ipywidgets have written it their way
  };
  for (const kind of ['keydown', 'focusout']) readout.addEventListener(kind, take, true);
}

function alert(place, where) { // a line for what went wrong, said by a screen reader at once, and no line while empty
  const made = document.createElement('p');
  made.className = 'qkv-error qkv-said';
  made.setAttribute('role', 'alert');
  place[where](made);
  return made;
}

function group(radios) { // one stop for Tab, arrows within, as in any form
  const name = 'qkv-' + Math.random();
  radios.querySelectorAll('input').forEach(input => { input.name = name; });
  radios.setAttribute('role', 'radiogroup');
  radios.setAttribute('aria-label', radios.closest('.qkv-panel').querySelector('p').textContent);
}

function connect(live) {
  const image = live.querySelector('img.qkv-picture'), heard = live.querySelector('.qkv-heard input');
  const panel = live.closest('.qkv-panel'), zoom = () => Number(getComputedStyle(panel).zoom) || 1;
  const hello = () => write(heard, `screen ${window.devicePixelRatio * zoom()} ${performance.now()}`);
  let size = zoom();
  new MutationObserver(() => { // of the text size
    if (size !== (size = zoom())) hello();
  }).observe(panel, {attributeFilter: ['class']});
  image.setAttribute('aria-labelledby', live.querySelector('p[id]').id); // the caption names the picture
  image.addEventListener('click', event => { // by the box on screen, which holds at any zoom
    const box = image.getBoundingClientRect();
    write(heard, `click ${(event.clientX - box.left) / box.width} ${(event.clientY - box.top) / box.height}`);
  });
  paint(live, image, hello);
  (function tell() { // the kernel draws as many pixels as the screen has, also after zooming
    hello();
    matchMedia(`(resolution: ${window.devicePixelRatio}dppx)`).addEventListener('change', tell, {once: true});
  })();
}

function paint(live, image, hello) { // see live.py: over the image, for a PNG takes too long to load
  const canvas = document.createElement('canvas');
  canvas.className = 'qkv-canvas';
  canvas.style.width = image.style.width;
  let last = NaN, done = Promise.resolve();
  async function show({number, size, patches, rows}) {
    if (!size && number !== last + 1) { // one was missed: ask for everything, once
      if (last) hello();
      last = NaN;
      return;
    }
    const pixels = await inflated(rows);
    if (size) {
      [canvas.width, canvas.height] = size;
      live.append(canvas);
    }
    let at = 0;
    for (const [left, top, width, times] of patches) {
      const data = new Uint32Array(width * times.reduce((sum, n) => sum + n));
      let end = 0;
      for (const n of times) {
        const row = pixels.subarray(at, at += width);
        for (let i = 0; i < n; i++, end += width) data.set(row, end);
      }
      canvas.getContext('2d').putImageData(new ImageData(new Uint8ClampedArray(data.buffer), width), left, top);
    }
    last = number;
  }
  const carrier = live.querySelector('.qkv-patches');
  new MutationObserver(() => { // a browser may keep a long text in several nodes: read the whole
    const text = carrier.textContent;
    if (text) done = done.then(() => show(JSON.parse(text)));
  }).observe(carrier, {childList: true, subtree: true});
}

function direct(talk) { // keys press the talk's buttons: those that clickers send, and a letter for each of the others
  const names = {' ': 'next', ArrowRight: 'next', PageDown: 'next', ArrowLeft: 'back', PageUp: 'back'};
  for (const letter of 'rapsbntc') names[letter] = letter;
  const alone = !talk.closest('.jp-NotebookPanel'); // as Voila shows it; else only where the talk has the focus
  talk.tabIndex = -1;
  (alone ? document : talk).addEventListener('keydown', event => {
    const takes = event.target.closest('[role=slider], [role=textbox], input, textarea, select');
    const button = event.target.closest('button');
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === 'Escape' && takes) return talk.focus(); // the keys are the talk's again
    const name = names[event.key.length > 1 ? event.key : event.key.toLowerCase()];
    if (!name || takes || (button && event.key === ' ')) return;
    event.preventDefault();
    event.stopPropagation();
    talk.querySelector('.qkv-key-' + name).click();
  }, true);
  talk.addEventListener('click', event => { // by mouse: the next key shall reach the talk, not the button
    if (event.detail && !event.target.closest('[role=slider], [role=textbox], input, textarea, select')) talk.focus();
  });
  if (alone) talk.focus();
  watch(talk, alone);
}

function watch(talk, alone) { // a talk whose Python is gone would only stand still
  const heard = talk.querySelector(':scope > .qkv-heard input'), pulse = talk.querySelector(':scope > .qkv-pulse');
  const said = alert(talk, 'prepend'), back = alone ? 'Press F5' : 'Run the cells of this notebook again';
  let asked = 0, last = 0;
  const ask = () => {
    if (performance.now() < last + 1000) return;
    last = performance.now();
    const mine = ++asked;
    write(heard, `alive ${mine}`);
    setTimeout(() => {
      const lost = Number(pulse.textContent) < mine && talk.isConnected;
      said.textContent = lost ? `Python does not answer, so keys do nothing. ${back}: the talk comes back at this scene.` : '';
    }, 4000);
  };
  talk.addEventListener('keydown', ask, true);
  const timer = setInterval(() => talk.isConnected ? ask() : clearInterval(timer), 5000);
}

function bytes(text) { // a loop: from() takes ten times as long
  const letters = atob(text), made = new Uint8Array(letters.length);
  for (let i = 0; i < made.length; i++) made[i] = letters.charCodeAt(i);
  return made;
}

async function inflated(text) { // a writer: a Blob's stream takes ten times as long
  const stream = new DecompressionStream('deflate'), writer = stream.writable.getWriter();
  writer.write(bytes(text));
  writer.close();
  return new Uint32Array(await new Response(stream.readable).arrayBuffer());
}

function pass(carrier) { // what is shown leaves the widget at once, so that no saved notebook has it
  const shown = document.createElement('div'), content = carrier.querySelector('.widget-html-content');
  const heard = carrier.parentElement.querySelector('.qkv-heard input');
  shown.setAttribute('role', 'status');
  carrier.append(shown);
  const take = () => {
    if (!content.textContent) return;
    shown.innerHTML = new TextDecoder().decode(bytes(content.textContent));
    write(heard, `taken ${performance.now()}`);
  };
  new MutationObserver(take).observe(content, {childList: true, subtree: true});
  take();
}

function link(linked) { // the page's address takes a panel's state, and gives it back when the page is opened anew
  const heard = linked.parentElement.querySelector('.qkv-heard input');
  new MutationObserver(() => {
    const said = linked.querySelector('[data-fragment]');
    if (said) history.replaceState(history.state, '', said.dataset.fragment);
  }).observe(linked, {childList: true, subtree: true});
  if (location.hash.startsWith('#cell=')) write(heard, location.hash);
}

function write(input, value) { // as if it had been typed, so that the kernel hears of it
  input.value = value;
  for (const kind of ['input', 'change']) input.dispatchEvent(new Event(kind, {bubbles: true}));
}

(function settle(tries) {
  const panel = hook.closest('.qkv-panel');
  // A panel may stand in another one, and has a hook of its own.
  const own = selector => [...panel.querySelectorAll(selector)].filter(it => it.closest('.qkv-panel') === panel);
  const missing = (outer, inner) => own(outer).length > own(inner).length;
  const early = !panel || missing('.widget-slider', '.noUi-handle') || missing('.qkv-live', '.qkv-live p[id]') ||
    missing('.qkv-passing', '.qkv-passing .widget-html-content') || missing('.qkv-linked', '.qkv-linked .widget-html-content') ||
    missing('.qkv-pulse', '.qkv-pulse .widget-html-content');
  if (early) return tries && setTimeout(settle, 100, tries - 1);
  own('.widget-slider').forEach(name);
  own('.widget-radio').forEach(group);
  own('.qkv-live').forEach(connect);
  own('.qkv-passing').forEach(pass);
  own('.qkv-linked').forEach(link);
  if (panel.classList.contains('qkv-talk')) direct(panel);
  panel.addEventListener('keydown', event => { // or JupyterLab would move from cell to cell
    const keys = /^(Arrow|Page|Home|End|Enter| )/.test(event.key);
    if (keys && !event.ctrlKey && !event.shiftKey && !event.altKey && !event.metaKey) event.stopPropagation();
  });
})(100);
