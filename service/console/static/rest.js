// How the pages ask the REST interface: as anybody would, with the header that no foreign page can send.

export const HEADERS = { "X-Fewpass-Console": "1", Accept: "application/json" };

/** Ask, and give what is answered; a problem document becomes an Error with its words. */
export async function ask(method, path, body, signal) {
  const options = { method, headers: { ...HEADERS }, signal, credentials: "same-origin" };
  if (body !== undefined) {
    const isFile = body instanceof Blob;
    options.headers["Content-Type"] = isFile ? "application/octet-stream" : "application/json";
    options.body = isFile ? body : JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer.");
  }
  if (response.status === 401) {
    location.assign(`/console/login?next=${encodeURIComponent(location.pathname + location.search)}`);
  }
  const text = await response.text();
  let answer = null;
  try {
    answer = text ? JSON.parse(text) : null;
  } catch {
    answer = { detail: text };
  }
  if (!response.ok) throw new Error(answer?.detail ?? `${response.status} ${response.statusText}`);
  return answer;
}

/** Text as one word of a shell. */
export function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** The call as a command for a shell. */
export function curl(method, path, body) {
  const parts = ["curl", ...(method === "GET" ? [] : ["-X", method])];
  if (body instanceof Blob) parts.push("-H", "'Content-Type: application/octet-stream'", "--data-binary", quoted(`@${body.name}`));
  else if (body !== undefined) parts.push("-H", "'Content-Type: application/json'", "-d", quoted(JSON.stringify(body)));
  parts.push(`"$FEWPASS_URL"${quoted(path)}`);
  return parts.join(" ");
}
