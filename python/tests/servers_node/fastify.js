// One route behind @fastify/rate-limit: `node fastify.js PORT LIMIT WINDOW_MS`.

const fastify = require("fastify")();

const [port, limit, windowMs] = process.argv.slice(2).map(Number);
fastify.register(require("@fastify/rate-limit"), { max: limit, timeWindow: windowMs });
fastify.after(() => fastify.get("/", async () => ({})));
fastify.listen({ port, host: "127.0.0.1" });
