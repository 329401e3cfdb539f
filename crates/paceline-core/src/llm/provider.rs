//! Whose API a URL is, and which model it names.

/// Providers by the ends of their hosts.
const HOSTS: [(&str, &str); 20] = [
    ("api.openai.com", "openai"),
    ("api.anthropic.com", "anthropic"),
    ("openai.azure.com", "azure"),
    ("cognitiveservices.azure.com", "azure"),
    ("services.ai.azure.com", "azure"),
    ("openrouter.ai", "openrouter"),
    ("api.groq.com", "groq"),
    ("api.together.ai", "together"),
    ("api.together.xyz", "together"),
    ("api.mistral.ai", "mistral"),
    ("api.cohere.com", "cohere"),
    ("api.cohere.ai", "cohere"),
    ("generativelanguage.googleapis.com", "google"),
    ("aiplatform.googleapis.com", "vertex"),
    ("api.deepseek.com", "deepseek"),
    ("api.x.ai", "xai"),
    ("api.fireworks.ai", "fireworks"),
    ("api.perplexity.ai", "perplexity"),
    ("api.cerebras.ai", "cerebras"),
    ("ollama.com", "ollama"),
];

/// The names of all providers that are known.
#[must_use]
pub fn provider_names() -> Vec<&'static str> {
    let mut names: Vec<_> = HOSTS.iter().map(|(_, name)| *name).chain(["bedrock"]).collect();
    names.dedup();
    names
}

/// The provider behind a host, by the name that is known for it.
///
/// ```
/// use paceline_core::llm::provider;
/// assert_eq!(provider("eu.api.openai.com"), Some("openai"));
/// assert_eq!(provider("my-team.openai.azure.com"), Some("azure"));
/// assert_eq!(provider("llm.example.com"), None);
/// ```
#[must_use]
pub fn provider(host: &str) -> Option<&'static str> {
    let is_of = |end: &str| {
        host.strip_suffix(end).is_some_and(|rest| {
            // Vertex puts its region before a dash.
            rest.is_empty() || rest.ends_with('.') || rest.ends_with('-')
        })
    };
    let known = HOSTS.iter().find(|(end, _)| is_of(end)).map(|(_, name)| *name);
    known.or_else(|| is_bedrock(host).then_some("bedrock"))
}

fn is_bedrock(host: &str) -> bool {
    host.starts_with("bedrock-runtime") && host.ends_with(".amazonaws.com")
}

/// The model that a path names: Gemini's and Vertex' `models/NAME:method`, Azure's `deployments/NAME`,
/// Bedrock's `model/NAME/invoke`.
///
/// ```
/// use paceline_core::llm::model_in_path;
/// let path = "/v1beta/models/gemini-3-flash:generateContent";
/// assert_eq!(model_in_path(path), Some("gemini-3-flash"));
/// assert_eq!(model_in_path("/v1/chat/completions"), None);
/// ```
#[must_use]
pub fn model_in_path(path: &str) -> Option<&str> {
    let mut segments =
        path.split('/').skip_while(|it| !matches!(*it, "models" | "deployments" | "model"));
    let kind = segments.next()?;
    let name = segments.next().filter(|name| !name.is_empty())?;
    match (kind, name.rsplit_once(':'), segments.next()) {
        ("models", Some((name, _method)), None) if !name.is_empty() => Some(name),
        ("deployments" | "model", _, Some(_)) => Some(name),
        _ => None,
    }
}

/// What stands for a model where a call names none: the resource that it is about, `files` for
/// `/v1/files/file-1/content`.
///
/// ```
/// use paceline_core::llm::resource;
/// assert_eq!(resource("/v1/files/file-1/content"), "files");
/// assert_eq!(resource("/openai/v1/fine_tuning/jobs"), "fine_tuning");
/// ```
#[must_use]
pub fn resource(path: &str) -> &str {
    let is_version = |it: &str| {
        let number = it.strip_prefix('v').unwrap_or_default();
        number.starts_with(|c: char| c.is_ascii_digit())
    };
    let mut rest = path.split('/').filter(|it| !it.is_empty());
    let mut at_version = rest.clone().skip_while(|it| !is_version(it)).skip(1);
    at_version.next().or_else(|| rest.next()).unwrap_or("*")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_29_another_base_url_is_another_provider() {
        for (host, expected) in [
            ("api.openai.com", Some("openai")),
            ("notapi.openai.com.example", None),
            ("evilapi.openai.com", None),
            ("eu.api.openai.com", Some("openai")),
            ("europe-west4-aiplatform.googleapis.com", Some("vertex")),
            ("bedrock-runtime.eu-west-1.amazonaws.com", Some("bedrock")),
            ("localhost", None),
            ("", None),
        ] {
            assert_eq!(provider(host), expected, "{host}");
        }
    }

    #[test]
    fn a_model_in_a_path_is_found_and_nothing_else_is_taken_for_one() {
        for (path, expected) in [
            ("/v1beta/models/gemini-3:streamGenerateContent", Some("gemini-3")),
            ("/v1/projects/p/locations/l/publishers/google/models/g-2:predict", Some("g-2")),
            ("/openai/deployments/my-gpt/chat/completions", Some("my-gpt")),
            ("/model/anthropic.claude-v2:1/invoke", Some("anthropic.claude-v2:1")),
            ("/v1/models/gpt-4o", None),
            ("/v1/models", None),
            ("/v1/models/", None),
            ("", None),
        ] {
            assert_eq!(model_in_path(path), expected, "{path}");
        }
        assert_eq!(resource("/v1/models/gpt-4o"), "models");
        assert_eq!(resource("/api/embed"), "api");
        assert_eq!(resource("/"), "*");
    }
}
