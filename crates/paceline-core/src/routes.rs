//! Which of a server's own buckets a path is counted in, as its responses said.
//!
//! A server that has several names the one that it used (GitHub's `x-ratelimit-resource`, Discord's
//! `x-ratelimit-bucket`). Paths are endless, so they are told apart only as far as that takes: the
//! bucket that was named first is taken for that of the whole host, and the first response that says
//! otherwise of a path draws the line one segment deeper.

use crate::Scope;
use std::collections::HashMap;
use std::sync::Arc;

/// Places in the paths of all hosts that are remembered; beyond that everything is learned anew.
const MOST: usize = 4_096;

/// The buckets of all hosts.
#[derive(Debug, Default)]
pub struct Routes {
    hosts: HashMap<Box<str>, Node>,
    size: usize,
}

/// A place in the paths of a host, and all below it that is counted otherwise.
#[derive(Debug, Default)]
struct Node {
    /// `None` until it is known; `Some(None)` where the host itself is the bucket.
    bucket: Option<Option<Arc<str>>>,
    below: HashMap<Box<str>, Self>,
}

impl Routes {
    /// Whether no server has named a bucket.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// The bucket that a scope is taken to be counted in.
    #[must_use]
    pub fn bucket(&self, scope: &Scope<'_>) -> Option<Arc<str>> {
        let mut node = self.hosts.get(scope.host())?;
        let mut found = node.bucket.as_ref();
        for segment in scope.segments() {
            let Some(below) = node.below.get(segment) else { break };
            node = below;
            found = node.bucket.as_ref();
        }
        found?.clone()
    }

    /// The host of a scope is its own bucket, unless a response says otherwise of a path.
    pub fn is_home(&mut self, scope: &Scope<'_>) {
        self.hosts.entry(scope.host().into()).or_default().bucket.get_or_insert(None);
    }

    /// A response said that a scope is counted in that bucket, or in none of its own. Tells whether
    /// that was news.
    pub fn learn(&mut self, scope: &Scope<'_>, bucket: Option<&str>) -> bool {
        if self.bucket(scope).as_deref() == bucket {
            return false;
        }
        if self.size >= MOST {
            *self = Self::default();
        }
        let mut node = self.hosts.entry(scope.host().into()).or_default();
        let deeper = node.bucket.is_some();
        for segment in scope.segments().filter(|_| deeper) {
            let known = node.below.contains_key(segment);
            node = node.below.entry(segment.into()).or_default();
            if !known {
                self.size += 1;
                break;
            }
        }
        node.bucket = Some(bucket.map(Arc::from));
        true
    }

    /// Forgets what was said of a host.
    pub fn forget(&mut self, host: &str) {
        self.hosts.remove(host);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(path: &str) -> Scope<'_> {
        Scope::parse(path).unwrap()
    }

    fn bucket(routes: &Routes, path: &str) -> Option<String> {
        routes.bucket(&scope(path)).map(|bucket| bucket.to_string())
    }

    #[test]
    fn rule_15_paths_are_told_apart_as_far_as_the_server_does() {
        let mut routes = Routes::default();
        routes.is_home(&scope("api.github.com"));
        assert!(routes.learn(&scope("api.github.com/search/issues"), Some("search")));
        assert_eq!(bucket(&routes, "api.github.com/search/users").as_deref(), Some("search"));
        assert_eq!(bucket(&routes, "api.github.com/repos/a/b"), None);
        assert!(!routes.learn(&scope("api.github.com/repos/a/b"), None));
        assert!(routes.learn(&scope("api.github.com/search/code"), Some("code_search")));
        assert_eq!(bucket(&routes, "api.github.com/search/code").as_deref(), Some("code_search"));
        assert_eq!(bucket(&routes, "api.github.com/search/issues").as_deref(), Some("search"));
        assert!(routes.learn(&scope("api.github.com/search/code"), None), "it changed");
        assert_eq!(bucket(&routes, "api.github.com/search/code/x"), None);
        assert_eq!(bucket(&routes, "api.github.com"), None);
    }

    #[test]
    fn rule_15_one_bucket_is_that_of_the_whole_host() {
        let mut routes = Routes::default();
        assert!(routes.learn(&scope("api.example.com/17"), Some("general")));
        assert!(!routes.learn(&scope("api.example.com/18"), Some("general")));
        assert_eq!(bucket(&routes, "api.example.com/19").as_deref(), Some("general"));
        assert!(routes.learn(&scope("api.example.com/search/x"), Some("search")));
        assert_eq!(bucket(&routes, "api.example.com/search/y").as_deref(), Some("search"));
        assert_eq!(bucket(&routes, "api.example.com/20").as_deref(), Some("general"));
    }

    #[test]
    fn endless_paths_fill_no_memory() {
        let mut routes = Routes::default();
        for n in 0..20_000 {
            let path = format!("a.example/{n}");
            routes.learn(&scope(&path), Some(&n.to_string()));
        }
        assert!(routes.size <= MOST);
    }
}
