// A line that follows the pointer over a timeline, with the time and what is under it.
for (const timeline of document.querySelectorAll('.timeline')) {
  const line = timeline.querySelector('.crosshair');
  const label = line.firstElementChild;
  const lanes = timeline.querySelector('.grid');
  // The line tells what the browser's own tips would tell, only later and in its way.
  for (const title of timeline.querySelectorAll('title')) {
    title.parentElement.tip = title.textContent;
    title.remove();
  }
  timeline.addEventListener('pointermove', (event) => {
    const box = lanes.getBoundingClientRect();
    const share = (event.clientX - box.left) / box.width;
    line.hidden = share < 0 || share > 1;
    const x = event.clientX - timeline.getBoundingClientRect().left;
    line.style.left = `${x}px`;
    line.classList.toggle('flip', share > 0.6);
    label.style.top = `${event.clientY - timeline.getBoundingClientRect().top + 14}px`;
    const time = `${(share * Number(timeline.dataset.end)).toFixed(3)} s`;
    label.textContent = event.target.tip ?? time;
  });
  timeline.addEventListener('pointerleave', () => { line.hidden = true; });
}
