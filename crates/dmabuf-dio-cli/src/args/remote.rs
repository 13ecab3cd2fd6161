// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options for objects.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use dmabuf_dio::Error;
use dmabuf_dio_remote::{Settings, Sums};
use dmabuf_dio_terminal::exit::{Failure, USAGE};
use dmabuf_dio_terminal::signals;
use dmabuf_dio_terminal::size::parse_size;
use sha2::{Digest as _, Sha256};

use super::url::{is_mistyped, is_prefix, is_url, shown};

/// Variables that lead the same URL to another server.
const ENDPOINTS: [&str; 8] = [
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT",
    "AWS_PROFILE",
    "AWS_REGION",
    "GOOGLE_BASE_URL",
    "AZURE_STORAGE_ENDPOINT",
    "AZURE_STORAGE_ACCOUNT_NAME",
];

/// Options of `load` and `keep` for objects.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct RemoteArgs {
    /// SHA-256 of the whole object, checked while it arrives
    #[arg(long, value_name = "HEX", value_parser = parse_sha256)]
    sha256: Option<[u8; 32]>,
    /// Sums of the object's chunks, from `dmabuf-dio sum`: each is checked as it arrives
    #[arg(long, value_name = "FILE")]
    sums: Option<PathBuf>,
    /// Further CAs to trust, in PEM
    #[arg(long, hide_short_help = true, value_name = "FILE")]
    ca: Option<PathBuf>,
}

/// Write the SHA-256 of each chunk of a file or object, for `load --sums`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dmabuf-dio sum model.gguf > model.gguf.sums
  dmabuf-dio load s3://models/model.gguf --sums model.gguf.sums

Exit codes: 0 done, 1 it cannot be read, 2 wrong usage")]
pub(crate) struct SumArgs {
    /// File, or URL of an object
    pub(crate) file: PathBuf,
    /// Bytes of a chunk
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "8MiB")]
    pub(crate) chunk_size: u64,
}

fn parse_sha256(text: &str) -> Result<[u8; 32], String> {
    Sums::parse_sha256(text).ok_or_else(|| "a SHA-256 has 64 hexadecimal digits".into())
}

impl RemoteArgs {
    /// Whether an object is to be checked.
    pub(crate) fn checks(&self) -> bool {
        self.sha256.is_some() || self.sums.is_some()
    }

    /// Fails if an option does not fit what is loaded.
    pub(crate) fn check(&self, path: &Path) -> Result<(), Failure> {
        if is_mistyped(path) {
            let what =
                format!("{}: there is no such file, and it is no URL", shown(path).display());
            return Err(Failure::new(USAGE, what, "write s3://BUCKET/KEY or https://HOST/PATH"));
        }
        let checks = self.checks();
        if !is_url(path) && (checks || self.ca.is_some()) {
            let what = "--sha256, --sums and --ca are for objects, and this is a file";
            return Err(Failure::new(USAGE, what, "name an object, or check the file: --verify"));
        }
        if is_prefix(path) && checks {
            let what = "--sha256 and --sums are of one object, and this is a prefix";
            return Err(Failure::new(USAGE, what, "name an object, without a slash at the end"));
        }
        Ok(())
    }

    /// The same, without checks: of parts.
    pub(crate) fn without_sums(&self) -> Self {
        Self { sha256: None, sums: None, ca: self.ca.clone() }
    }

    /// A digest of what the bytes of an object depend on: the whole URL, where it is searched for, and the sums that it
    /// is checked against.
    pub(crate) fn digest(&self, url: &Path) -> String {
        let mut sum = Sha256::new();
        let mut add = |name: &str, value: &[u8]| {
            sum.update((name.len() as u64).to_le_bytes());
            sum.update(name);
            sum.update((value.len() as u64).to_le_bytes());
            sum.update(value);
        };
        add("url", url.as_os_str().as_encoded_bytes());
        for name in ENDPOINTS {
            add(name, std::env::var_os(name).unwrap_or_default().as_encoded_bytes());
        }
        add("sha256", self.sha256.as_ref().map_or(&[], |sum| &sum[..]));
        // A file that cannot be read is an error of the load.
        let sums = self.sums.as_ref().and_then(|path| std::fs::read(path).ok());
        add("sums", sums.as_deref().unwrap_or_default());
        format!("{:x}", sum.finalize())
    }

    pub(crate) fn settings(&self) -> Result<Settings, Error> {
        let sums = self.sums.as_deref().map(Sums::read).transpose()?.map(Arc::new);
        let (sha256, ca, cancel) = (self.sha256, self.ca.clone(), signals::token());
        Ok(Settings { sha256, sums, ca, cancel, ..Settings::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_urls_are_refused_without_their_secrets() {
        let check = |path: &str| RemoteArgs::default().check(Path::new(path));
        for path in ["https//secret@h/x", "https//h/x?secret", "s3?secret", "https:/h/x?secret"] {
            let failure = check(path).expect_err("it is no URL");
            assert!(!format!("{failure:?}").contains("secret"), "{failure:?}");
        }
        for path in ["https/x", "s3/b/k", "https://h/x"] {
            assert!(check(path).is_ok(), "{path}");
        }
        assert_eq!(shown(Path::new("https/x")), Path::new("https/x"));
    }

    #[test]
    fn digest_depends_on_the_query_and_on_sums() {
        let plain = RemoteArgs::default();
        let digest = |url: &str| plain.digest(Path::new(url));
        let url = "https://models/m?file=a";
        assert_eq!(digest(url), digest(url));
        assert_ne!(digest(url), digest("https://models/m?file=b"));
        let checked = RemoteArgs { sha256: Some([1; 32]), ..RemoteArgs::default() };
        assert_ne!(digest(url), checked.digest(Path::new(url)));
    }
}
