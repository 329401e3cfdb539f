use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use tempfile::TempDir;

/// PEM files: of an authority, of a server that it vouches for, and of an authority that does not.
#[derive(Clone)]
pub(crate) struct Certificates {
    // Shared with the servers: they read the files again when they restart.
    directory: Arc<TempDir>,
}

impl Certificates {
    /// The server is `localhost` and `127.0.0.1`.
    pub(crate) fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("paceline-").tempdir().unwrap();
        let new = Self { directory: Arc::new(directory) };
        let (authority, issuer) = create_authority("paceline tests");
        fs::write(new.authority(), authority.pem()).unwrap();
        let (unrelated, _) = create_authority("somebody else");
        fs::write(new.unrelated_authority(), unrelated.pem()).unwrap();

        let key = KeyPair::generate().unwrap();
        let names = ["localhost", "127.0.0.1"].map(str::to_owned);
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, "localhost");
        // Python refuses a certificate that does not name its authority's key.
        params.use_authority_key_identifier_extension = true;
        fs::write(new.certificate(), params.signed_by(&key, &issuer).unwrap().pem()).unwrap();
        fs::write(new.key(), key.serialize_pem()).unwrap();
        new
    }

    /// Clients that trust it trust the server.
    pub(crate) fn authority(&self) -> PathBuf {
        self.path("authority.pem")
    }

    /// Clients that trust only this one must refuse the server.
    pub(crate) fn unrelated_authority(&self) -> PathBuf {
        self.path("unrelated.pem")
    }

    /// The server's.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.path("server.pem")
    }

    /// The server's.
    pub(crate) fn key(&self) -> PathBuf {
        self.path("server.key")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

fn create_authority(name: &str) -> (Certificate, Issuer<'static, KeyPair>) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    (params.self_signed(&key).unwrap(), Issuer::new(params, key))
}
