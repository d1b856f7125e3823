//! `/v1/models`.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use super::App;
use super::error::ApiError;
use crate::requests::ModelInfo;

/// The one model, or none before an engine is attached.
pub(super) async fn list(State(app): State<App>) -> Json<Value> {
    let models: Vec<Value> = app.model().iter().map(describe).collect();
    Json(json!({"object": "list", "data": models}))
}

pub(super) async fn one(
    State(app): State<App>,
    asked: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, ApiError> {
    let unreadable = |_| ApiError::request("the model's name in the path is not UTF-8");
    let Path(asked) = asked.map_err(unreadable)?;
    let Some(model) = app.model() else {
        return Err(ApiError::unavailable(app.no_engine()));
    };
    if model.name == asked {
        Ok(Json(describe(&model)))
    } else {
        Err(ApiError::no_such_model(&asked, &model.name))
    }
}

/// `created` is what the interface wants and nobody knows. `max_model_len` is what other servers call the context.
fn describe(model: &ModelInfo) -> Value {
    json!({
        "id": model.name,
        "object": "model",
        "created": 0,
        "owned_by": "lynx",
        "max_model_len": model.context_tokens,
    })
}
