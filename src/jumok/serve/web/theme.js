/* Before anything is drawn: the theme chosen earlier, so that the page does not flash. */
(function () {
  "use strict";
  try {
    const theme = localStorage.getItem("jumok-theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // a browser that keeps nothing: the system's theme it is
  }
})();
