// Loads the page again when the server has another version of it. What is shown stays, since the address keeps it.
"use strict";

(() => {
  const shown = "VERSION";
  const look = async () => {
    try {
      const answer = await fetch("/version", { cache: "no-store" });
      if (answer.ok && (await answer.text()) !== shown) location.reload();
    } catch {
      // The server has ended, or is about to start again: the page stays as it is.
    }
  };
  setInterval(look, 1000);
})();
