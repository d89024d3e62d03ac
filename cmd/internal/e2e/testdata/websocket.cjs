// Opens each WebSocket in turn, sends one message and prints what comes back.
const talk = (url) =>
  new Promise((resolve) => {
    const socket = new WebSocket(url);
    socket.onopen = () => socket.send("hello");
    socket.onmessage = (event) => {
      socket.onerror = null;
      socket.onclose = null;
      socket.close();
      resolve("echo: " + event.data);
    };
    socket.onerror = () => resolve("refused");
    socket.onclose = () => resolve("refused");
  });

(async () => {
  for (const url of process.argv.slice(2)) console.log(await talk(url));
  process.exit(0);
})();
