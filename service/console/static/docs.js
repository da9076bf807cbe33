// Starts Swagger UI on our own document; nothing is fetched from elsewhere, and no validator is asked.
"use strict";
window.addEventListener("DOMContentLoaded", () => {
  window.ui = SwaggerUIBundle({
    url: "/openapi.json",
    dom_id: "#swagger",
    deepLinking: true,
    validatorUrl: null,
    persistAuthorization: false,
    requestInterceptor: (request) => {
      request.headers["X-Fewpass-Console"] = "1";
      return request;
    },
  });
});
