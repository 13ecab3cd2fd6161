// SPDX-License-Identifier: MIT OR Apache-2.0
//! The keys of a profile in the files of the AWS command: `~/.aws/credentials` and `~/.aws/config`. `object_store`
//! reads neither. Profiles that get their keys elsewhere (SSO, roles, programs) are not followed.

use std::path::PathBuf;

/// The settings of the files, and the variables of the same meaning.
const NAMES: [(&str, &str); 6] = [
    ("aws_access_key_id", "AWS_ACCESS_KEY_ID"),
    ("aws_secret_access_key", "AWS_SECRET_ACCESS_KEY"),
    ("aws_session_token", "AWS_SESSION_TOKEN"),
    ("region", "AWS_REGION"),
    ("endpoint_url", "AWS_ENDPOINT_URL"),
    ("ca_bundle", "AWS_CA_BUNDLE"),
];

/// Reads the profile that the environment names, or the default one. Gives variables that are not set otherwise.
/// `get` is the environment.
pub(crate) fn variables(get: impl Fn(&str) -> Option<String>) -> Vec<(&'static str, String)> {
    let home = || get("HOME").map(PathBuf::from);
    let file = |variable: &str, name: &str| {
        get(variable).map(PathBuf::from).or_else(|| Some(home()?.join(".aws").join(name)))
    };
    let profile = get("AWS_PROFILE").or_else(|| get("AWS_DEFAULT_PROFILE"));
    let profile = profile.unwrap_or_else(|| "default".into());
    let sections = [profile.clone(), format!("profile {profile}")];
    let mut found: Vec<(&'static str, String)> = Vec::new();
    for path in
        [file("AWS_SHARED_CREDENTIALS_FILE", "credentials"), file("AWS_CONFIG_FILE", "config")]
    {
        let Some(text) = path.and_then(|path| std::fs::read_to_string(path).ok()) else { continue };
        for (name, value) in settings(&text, &sections) {
            let known = NAMES.iter().find(|(known, _)| *known == name);
            let Some((_, variable)) = known else { continue };
            if !found.iter().any(|(other, _)| other == variable) {
                found.push((variable, value.to_owned()));
            }
        }
    }
    // Keys go together: those of the environment are not mixed with others.
    let has_key = get("AWS_ACCESS_KEY_ID").is_some();
    let is_key = |variable: &str| {
        variable.ends_with("KEY_ID") || variable.ends_with("KEY") || variable.ends_with("TOKEN")
    };
    found.retain(|(variable, _)| get(variable).is_none() && !(has_key && is_key(variable)));
    found
}

/// The settings of these sections.
pub(crate) fn settings<'a>(text: &'a str, sections: &[String]) -> Vec<(&'a str, &'a str)> {
    let mut ours = false;
    let mut found = Vec::new();
    for line in text.lines() {
        let bare = line.trim();
        if let Some(section) = bare.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            ours = sections.iter().any(|wanted| wanted == section.trim());
        } else if ours && !line.starts_with([' ', '\t', '#', ';']) {
            // Lines that begin with a space belong to the setting before.
            found.extend(bare.split_once('=').map(|(name, value)| (name.trim(), value.trim())));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_the_named_profile_are_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let aws = folder.path().join(".aws");
        std::fs::create_dir(&aws).expect("created");
        let keys = "[default]\naws_access_key_id = A\naws_secret_access_key=B\n[other]\n# x\naws_access_key_id=C\n";
        std::fs::write(aws.join("credentials"), keys).expect("written");
        let config =
            "[profile other]\nregion = eu-1\ns3 =\n  endpoint_url = no\n[default]\nregion=us-9\n";
        std::fs::write(aws.join("config"), config).expect("written");
        let home = folder.path().to_str().expect("text").to_owned();
        let with = |set: &[(&str, &str)]| {
            variables(|name| match name {
                "HOME" => Some(home.clone()),
                _ => set.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).into()),
            })
        };
        let text = |found: &[(&str, &str)]| {
            found.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
        };
        let got = |set: &[(&str, &str)]| {
            with(set).iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
        };
        let all =
            [("AWS_ACCESS_KEY_ID", "A"), ("AWS_SECRET_ACCESS_KEY", "B"), ("AWS_REGION", "us-9")];
        assert_eq!(got(&[]), text(&all));
        let other = [("AWS_ACCESS_KEY_ID", "C"), ("AWS_REGION", "eu-1")];
        assert_eq!(got(&[("AWS_PROFILE", "other")]), text(&other));
        let mixed = [("AWS_ACCESS_KEY_ID", "X"), ("AWS_REGION", "here")];
        assert_eq!(got(&mixed), Vec::<String>::new(), "the environment has its own");
        assert_eq!(got(&[("AWS_PROFILE", "none")]), Vec::<String>::new());
    }
}
