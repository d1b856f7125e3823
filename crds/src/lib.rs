//! The LynxDeployment custom resource.
