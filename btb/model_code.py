"""A checkpoint as an MLflow model: registered with it as code, so that nothing is pickled.

MLflow runs this file when somebody loads the model by `mlflow.pyfunc.load_model`, and when one is
saved; `btb` itself reads the checkpoint only. Where it runs, `btb` has to be installed.
"""

from pathlib import Path

import pandas as pd  # type: ignore[import-untyped]  # comes with mlflow, which asks in its terms

from btb.tracking import quiet
from models.base import CountModel
from models.checkpoint import load

with quiet():
    import mlflow
    from mlflow.pyfunc.model import PythonModel, PythonModelContext


class CheckpointModel(PythonModel):
    """Rows of features in; for each horizon the mean and shape of the count out."""

    def __init__(self) -> None:
        self._models: dict[float, CountModel] = {}

    def load_context(self, context: PythonModelContext) -> None:
        """Read the checkpoint."""
        self._models = dict(load(Path(context.artifacts["checkpoint"])).models)

    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame, params: object = None
    ) -> pd.DataFrame:
        """Return columns mean_Hs and shape_Hs for each horizon of H seconds."""
        columns: dict[str, list[float]] = {}
        rows = model_input.to_dict(orient="records")
        for horizon_s, model in self._models.items():
            counts = [model.predict_one(row) for row in rows]
            columns[f"mean_{horizon_s:g}s"] = [count.mean for count in counts]
            columns[f"shape_{horizon_s:g}s"] = [count.shape for count in counts]
        return pd.DataFrame(columns, index=model_input.index)


mlflow.models.set_model(CheckpointModel())
