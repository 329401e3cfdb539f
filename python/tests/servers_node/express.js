// One route behind express-rate-limit: `node express.js PORT LIMIT WINDOW_MS`. The path says which
// headers it sends: /legacy, /draft-7, /draft-8.

const express = require("express");
const { rateLimit } = require("express-rate-limit");

const [port, limit, windowMs] = process.argv.slice(2).map(Number);
const app = express();
for (const headers of ["legacy", "draft-7", "draft-8"]) {
  const legacy = headers === "legacy";
  const limiter = rateLimit({
    limit,
    windowMs,
    legacyHeaders: legacy,
    standardHeaders: legacy ? false : headers,
  });
  app.get(`/${headers}`, limiter, (_, response) => response.json({}));
}
app.listen(port, "127.0.0.1");
