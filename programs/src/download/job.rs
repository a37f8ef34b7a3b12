//! What to download, and where to.

use std::path::{Path, PathBuf};

use hyper::Uri;

/// A URL, and the file for it.
#[derive(Clone, Debug)]
pub struct Job {
    uri: Uri,
    name: String,
    directory: PathBuf,
}

impl Job {
    /// Reads a URL such as `http://localhost:8000/knots.txt`. The file gets the last part of its path as its name.
    ///
    /// # Errors
    ///
    /// The text that says what is wrong with the URL.
    pub fn new(url: &str, directory: &Path) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|error| format!("{url}: {error}"))?;
        if uri.scheme_str() != Some("http") || uri.host().is_none_or(str::is_empty) {
            return Err(format!("{url}: only URLs such as http://host:port/path are supported"));
        }
        let name = match uri.path().rsplit('/').next() {
            None | Some("") => "index.html",
            Some("." | "..") => return Err(format!("{url}: the path has no name for the file")),
            Some(name) => name,
        };
        Ok(Job {
            name: name.to_owned(),
            directory: directory.to_owned(),
            uri,
        })
    }

    /// Returns the name of the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the path of the whole file.
    pub fn target(&self) -> PathBuf {
        self.directory.join(&self.name)
    }

    /// Returns the path of the file until it is whole.
    pub fn partial(&self) -> PathBuf {
        self.directory.join(format!(".{}.part", self.name))
    }

    pub(super) fn host(&self) -> &str {
        // Addresses of version 6 are in brackets.
        self.uri.host().unwrap_or_default().trim_matches(['[', ']'])
    }

    pub(super) fn port(&self) -> u16 {
        self.uri.port_u16().unwrap_or(80)
    }

    pub(super) fn authority(&self) -> &str {
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        // A server needs no user and password that are meant for a proxy or a log.
        authority.rsplit('@').next().unwrap_or_default()
    }

    pub(super) fn path(&self) -> &str {
        self.uri.path_and_query().map_or("/", |path| path.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_the_last_part_of_the_path() {
        let name = |url: &str| Job::new(url, Path::new("to")).map(|job| (job.target(), job.partial()));
        let expected = |name: &str| {
            Ok((
                Path::new("to").join(name),
                Path::new("to").join(format!(".{name}.part")),
            ))
        };
        assert_eq!(name("http://host/a/knot.txt"), expected("knot.txt"));
        assert_eq!(name("http://host:8000/a/knot?tied=1"), expected("knot"));
        assert_eq!(name("http://host"), expected("index.html"));
        assert_eq!(name("http://host/a/"), expected("index.html"));
        for refused in [
            "https://host/a",
            "host/a",
            "/a",
            "http:///a",
            "http://host/..",
            "http://host/a b",
            "ftp://host/a",
            "",
        ] {
            assert!(name(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn the_address_is_that_of_the_url() {
        let job = Job::new("http://user@[::1]:8000/a?b=c", Path::new("")).unwrap();
        assert_eq!((job.host(), job.port(), job.authority()), ("::1", 8000, "[::1]:8000"));
        assert_eq!(job.path(), "/a?b=c");
    }
}
