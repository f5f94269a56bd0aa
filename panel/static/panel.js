// Light or dark theme: the system's setting until the user chooses; the choice is stored in this browser.
(() => {
  const KEY = "loragate-panel-theme";
  const apply = (theme) => {
    if (!theme || !document.body) return;
    document.body.classList.toggle("body--dark", theme === "dark");
    document.body.classList.toggle("body--light", theme === "light");
  };
  const chosen = () => localStorage.getItem(KEY);
  const isDark = () => document.body.classList.contains("body--dark");
  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-theme-switch]")) return;
    localStorage.setItem(KEY, isDark() ? "light" : "dark");
    apply(chosen());
  });
  // Quasar sets its own theme once it has started.
  const watch = () => {
    apply(chosen());
    new MutationObserver(() => {
      const theme = chosen();
      if (theme && isDark() !== (theme === "dark")) apply(theme);
    }).observe(document.body, { attributes: true, attributeFilter: ["class"] });
  };
  document.body ? watch() : document.addEventListener("DOMContentLoaded", watch);
})();
