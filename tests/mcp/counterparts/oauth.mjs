// An authorization server by npm's `oidc-provider`, on the port PORT of this machine, for the resource RESOURCE. Its user agrees to everything.
import http from "node:http";
import Provider from "oidc-provider";

const { PORT, RESOURCE } = process.env;
const origin = `http://127.0.0.1:${PORT}`;
const redirect_uris = ["https://app.example/callback"];
const client = { redirect_uris, grant_types: ["authorization_code", "refresh_token"], response_types: ["code"] };
const documents = {
  "https://app.example/client.json": { ...client, client_id: "https://app.example/client.json", client_name: "The program", token_endpoint_auth_method: "none" },
};

const provider = new Provider(origin, {
  clients: [{ ...client, client_id: "registered", client_secret: "the secret of the client" }],
  scopes: ["offline_access", "read", "write"],
  pkce: { required: () => true },
  rotateRefreshToken: true,
  issueRefreshToken: async (_, client) => client.grantTypeAllowed("refresh_token"),
  findAccount: async (_, id) => ({ accountId: id, claims: async () => ({ sub: id }) }),
  interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
  fetch: async (url) => Response.json(documents[url] ?? {}, { status: documents[url] ? 200 : 404 }),
  features: {
    devInteractions: { enabled: false },
    registration: { enabled: true },
    revocation: { enabled: true },
    clientIdMetadataDocument: { enabled: true, ack: "draft-02" },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: () => true,
      getResourceServerInfo: (_, resource) => {
        if (resource !== RESOURCE) throw new Error(`unknown resource ${resource}`);
        return { scope: "read write", audience: resource, accessTokenFormat: "opaque" };
      },
    },
  },
});

// Logs in, and agrees to what is requested.
async function interact(request, response) {
  const { prompt, params, session, grantId } = await provider.interactionDetails(request, response);
  if (prompt.name === "login") return provider.interactionFinished(request, response, { login: { accountId: "ada" } });
  const grant = grantId ? await provider.Grant.find(grantId) : new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  if (prompt.details.missingOIDCScope) grant.addOIDCScope(prompt.details.missingOIDCScope.join(" "));
  for (const [resource, scopes] of Object.entries(prompt.details.missingResourceScopes ?? {})) grant.addResourceScope(resource, scopes.join(" "));
  return provider.interactionFinished(request, response, { consent: { grantId: await grant.save() } }, { mergeWithLastSubmission: true });
}

// Opens a URL like a browser, until it leads to another site. Returns that URL.
async function browse(url) {
  const cookies = new Map();
  for (let hops = 0; hops < 20; hops++) {
    const cookie = [...cookies].map(([name, value]) => `${name}=${value}`).join("; ");
    const response = await fetch(url, { redirect: "manual", headers: { cookie } });
    for (const line of response.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(line);
      value ? cookies.set(name, value) : cookies.delete(name);
    }
    const location = response.headers.get("location");
    if (!location) return `HTTP ${response.status}: ${await response.text()}`;
    url = new URL(location, url).href;
    if (!url.startsWith(`${origin}/`)) return url;
  }
  return "too many redirects";
}

const serve = provider.callback();
http.createServer(async (request, response) => {
  const { pathname, searchParams } = new URL(request.url, origin);
  try {
    if (pathname.startsWith("/interaction/")) return await interact(request, response);
    if (pathname === "/browse") return response.end(await browse(searchParams.get("url")));
    // What a token is good for; nothing if it is not valid.
    if (pathname === "/check") {
      const token = await provider.AccessToken.find(searchParams.get("token"));
      return response.end(token?.isValid ? JSON.stringify([token.aud, token.accountId, token.scope]) : "null");
    }
    return serve(request, response);
  } catch (error) {
    response.statusCode = 500;
    return response.end(String(error));
  }
}).listen(Number(PORT), "127.0.0.1", () => console.error("listening"));
